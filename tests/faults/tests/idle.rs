//! Nothing happens: two connected processes that wait use no CPU.

use std::time::{Duration, Instant};

use viaduct_faults::frozen::cpu_time;
use viaduct_faults::node::{Mode, Place};
use viaduct_kit::child::say;
use viaduct_kit::tempdir::TempDir;
use viaduct_kit::watchdog::Watchdog;
use viaduct_via::{Descriptor, Error, Nic, SharedNic, Vi, ViAttributes};

const LIMIT: Duration = Duration::from_secs(60);
/// How long nothing happens.
const WHILE: Duration = Duration::from_secs(2);
/// Most of one CPU that waiting may take, control threads included, in per cent.
const CPU: f64 = 1.0;

/// Per cent of a CPU that this process used while `wait` ran.
fn share(wait: impl FnOnce()) -> f64 {
    let (start, before) = (Instant::now(), cpu_time());
    wait();
    100.0 * (cpu_time() - before).as_secs_f64() / start.elapsed().as_secs_f64()
}

fn wait(nic: &mut Nic, vi: Vi) {
    assert!(matches!(nic.wait_recv(vi, Some(WHILE)), Err(Error::Timeout)));
}

viaduct_kit::child!(IDLE_CLIENT, |args| {
    let mut nic = Place { folder: args[0].as_ref(), mode: Mode::Direct }.open_wary();
    let tag = nic.create_ptag().unwrap();
    let vi = nic.create_vi(ViAttributes::new(tag)).unwrap();
    nic.post_recv(vi, Descriptor::recv(vec![0; 8].into())).unwrap();
    nic.connect_start(vi, None, &"idle".parse().unwrap(), &[], None).unwrap();
    nic.connect_finish(vi).unwrap();
    say(share(|| wait(&mut nic, vi)));
    viaduct_kit::child::hear();
});

viaduct_kit::isolated! { limit 120;
    fn two_processes_that_wait_use_no_cpu() {
        let _watchdog = Watchdog::arm(LIMIT, "two idle processes");
        let folder = TempDir::new("idle");
        let mut nic = Place { folder: folder.path(), mode: Mode::Direct }.open_wary();
        let tag = nic.create_ptag().unwrap();
        let vi = nic.create_vi(ViAttributes::new(tag)).unwrap();
        nic.post_recv(vi, Descriptor::recv(vec![0; 8].into())).unwrap();
        let listener = nic.listen(&"idle".parse().unwrap(), 1).unwrap();
        let mut client = IDLE_CLIENT.spawn(&[folder.path().to_str().unwrap()]);
        let request = nic.wait_listener(listener, None).unwrap();
        nic.accept(request, vi).unwrap();
        let ours = share(|| wait(&mut nic, vi));
        let theirs: f64 = client.expect_line("", LIMIT).parse().unwrap();
        client.finish(LIMIT);
        eprintln!("idle: {ours:.2} % and {theirs:.2} % of a CPU");
        assert!(ours < CPU && theirs < CPU, "{ours:.2} % and {theirs:.2} %");

        // A listener to which no client comes, and a thread that waits to call a handler.
        let alone = share(|| assert!(nic.wait_listener(listener, Some(WHILE)).is_err()));
        let shared = SharedNic::new(nic);
        shared.on_error(Some(std::sync::Arc::new(|_, _| {}))).unwrap();
        let served = share(|| std::thread::sleep(WHILE));
        assert!(alone < CPU && served < CPU, "{alone:.2} % and {served:.2} %");
    }
}
