//! The kernel copies between processes by number, and the number of a process that has ended is given to another one.
//! Nothing is copied by the number of a peer that has ended, also before the control thread has dealt with its end.

use std::time::Duration;

use viaduct_faults::node::{Mode, Place};
use viaduct_kit::child::hear;
use viaduct_kit::tempdir::TempDir;
use viaduct_kit::watchdog::Watchdog;
use viaduct_os::point::{self, Action};
use viaduct_os::process::vm_read;
use viaduct_via::{
    Counter, Descriptor, Error, MemAttributes, MemHandle, Nic, RemoteAddress, Status, ViAttributes,
};

const LIMIT: Duration = Duration::from_secs(60);
const WINDOW: usize = 4096;
/// How late the control thread deals with the end of a peer.
const LATE: Duration = Duration::from_millis(500);

// Offers ordinary memory, which peers reach through the kernel alone, and waits to be killed.
viaduct_kit::child!(OFFERING, |args| {
    let mut nic = Place { folder: args[0].as_ref(), mode: Mode::Direct }.open();
    let tag = nic.create_ptag().unwrap();
    let vi = nic.create_vi(ViAttributes::new(tag)).unwrap();
    let window = nic.register(vec![7; WINDOW], MemAttributes::remote(tag)).unwrap();
    let at = window.remote(0);
    let place = [&at.addr.to_ne_bytes()[..], &at.handle.number().to_ne_bytes()].concat();
    nic.connect_start(vi, None, &"numbers".parse().unwrap(), &place, None).unwrap();
    nic.connect_finish(vi).unwrap();
    hear();
});

viaduct_kit::isolated! { limit 120;
    fn nothing_is_copied_by_the_number_of_a_peer_that_has_ended() {
        let _watchdog = Watchdog::arm(LIMIT, "copies by the number of an ended peer");
        let folder = TempDir::new("numbers");
        let mut nic = Place { folder: folder.path(), mode: Mode::Direct }.open();
        let tag = nic.create_ptag().unwrap();
        let listener = nic.listen(&"numbers".parse().unwrap(), 1).unwrap();
        let mut peer = OFFERING.spawn(&[folder.path().to_str().unwrap()]);
        let request = nic.wait_listener(listener, Some(LIMIT)).unwrap();
        let place = request.remote().private_data.clone();
        let addr = u64::from_ne_bytes(place[..8].try_into().unwrap());
        let handle = MemHandle::from_number(u32::from_ne_bytes(place[8..].try_into().unwrap()));
        let vi = nic.create_vi(ViAttributes::new(tag)).unwrap();
        nic.accept(request, vi).unwrap();
        let mut read = [0; WINDOW];
        // SAFETY: the local is valid for writes, and no reference to it exists meanwhile.
        let copied = unsafe { vm_read(peer.pid() as i32, read.as_mut_ptr(), addr, WINDOW) };
        assert_eq!(nic.can_read_private(vi), copied.is_ok(), "what the probe found, and the kernel: {copied:?}");
        if copied.is_err() {
            viaduct_kit::skip!("process_vm_readv is forbidden here");
        }
        assert_eq!(read, [7; WINDOW]);
        let write = |nic: &mut Nic| {
            let source = nic.register(vec![1; WINDOW], MemAttributes::local(tag)).unwrap();
            nic.post_send(vi, Descriptor::rdma_write(source, RemoteAddress { addr, handle })).unwrap();
        };
        write(&mut nic);
        assert_eq!(nic.wait_send_outcome(vi, Some(LIMIT)).unwrap().status(), Status::Success);
        let before = nic.counters().read(Counter::KernelCopies);
        assert!(before > 0, "by the kernel while the peer lives");
        nic.read_private(vi, addr, &mut read).unwrap();
        assert_eq!(read, [1; WINDOW]);
        let before = nic.counters().read(Counter::KernelCopies);

        point::arm("control.gone", 1, Action::Sleep(LATE));
        peer.kill();
        peer.wait(LIMIT);
        let refused = nic.read_private(vi, addr, &mut read).unwrap_err();
        assert!(matches!(refused, Error::NotReachable(_)), "{refused}");
        write(&mut nic);
        assert_ne!(nic.wait_send_outcome(vi, Some(LIMIT)).unwrap().status(), Status::Success);
        assert_eq!(nic.counters().read(Counter::KernelCopies), before, "the kernel was asked for a number");
    }
}
