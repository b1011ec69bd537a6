//! Connections that have not proved to be of this job: bounded in time, number and bytes.

use viaduct_kit::isolated;
use viaduct_os::budget::Budget;

use super::super::connect::GREETING_NS;
use super::*;

/// More than may be there at once.
const CROWD: usize = 160;
const MOST: usize = 128;

impl Rogue {
    /// Whether the connection is over already.
    fn is_over(&mut self) -> bool {
        self.look();
        self.over
    }

    /// Whether it is answered before it is cut off.
    fn hears_a_challenge(&mut self) -> bool {
        match self.hear() {
            Heard::Frame(bytes) => Hello::parse(&bytes[HEAD..]).unwrap().step() == step::CHALLENGE,
            Heard::Over => false,
        }
    }

    fn version_nine(&mut self) {
        let mut bytes = request().as_bytes().to_vec();
        bytes[8] = 9;
        let mut head = Head::new(Kind::Hello);
        head.length = (bytes.len() as u32).into();
        assert!(self.send(&[head.as_bytes(), &bytes].concat()));
        assert_eq!(self.hear_hello().step(), step::WRONG_VERSION);
    }
}

#[test]
#[cfg_attr(miri, ignore = "uses a library")]
fn a_stranger_has_its_time_from_its_arrival_on_whatever_it_says() {
    let _watchdog = Watchdog::arm(Duration::from_secs(300), "a stranger");
    let Some(mut s) = scene() else { return };
    // One that came two seconds before another leaves before it, though it spoke four seconds after its arrival. A machine
    // that stands still for those seconds drops both by the time we look: that is no answer, and one is had at last.
    for _ in 0..8 {
        let mut early = Rogue::new(&s.config, &s.token);
        std::thread::sleep(Duration::from_secs(2));
        let mut late = Rogue::new(&s.config, &s.token);
        std::thread::sleep(Duration::from_secs(2));
        if early.hello(&request()) && early.hears_a_challenge() {
            early.is_cut_off();
            if !late.is_over() {
                s.is_well();
                return;
            }
        }
    }
    panic!("what spoke was never cut off before one that came two seconds later");
}

#[test]
#[cfg_attr(miri, ignore = "uses a library")]
fn a_stranger_that_only_gives_signs_of_life_is_cut_off() {
    let _watchdog = Watchdog::arm(Duration::from_secs(120), "signs of life");
    let Some(mut s) = scene() else { return };
    for greets in [false, true] {
        let start = Instant::now();
        let mut rogue = Rogue::new(&s.config, &s.token);
        if greets {
            assert!(rogue.hello(&request()));
            assert_eq!(rogue.hear_hello().step(), step::CHALLENGE);
        }
        // Again and again: a limit that counts from the last sign of life would never be reached.
        while !rogue.is_over() {
            assert!(
                start.elapsed() < scaled(Duration::from_secs(40)),
                "signs of life keep it, greets: {greets}"
            );
            let mut head = Head::new(Kind::Alive);
            head.sequence = rogue.sent.into();
            rogue.send(head.as_bytes());
            std::thread::sleep(Duration::from_millis(100));
        }
    }
    // Nor does a frame that is longer than any greeting find room.
    let mut rogue = Rogue::new(&s.config, &s.token);
    let mut head = Head::new(Kind::Hello);
    head.length = 3000.into();
    rogue.send(&[head.as_bytes(), &[0; 3000]].concat());
    rogue.is_cut_off();
    s.is_well();
}

isolated! {
    limit 300;
    #[cfg_attr(miri, ignore = "uses a library")]
    fn a_crowd_of_refused_strangers_is_bounded_and_keeps_no_client_out() {
        let _watchdog = Watchdog::arm(Duration::from_secs(300), "a crowd");
        // Strangers leave after their silence, too: here they are in no hurry.
        let patient = |config: &mut OfiConfig| config.silence = Duration::from_secs(100);
        let Some(mut s) = scene_with(FRAME, patient) else { return };
        // Each has a libfabric of its own.
        let many = libc::rlimit { rlim_cur: 4096, rlim_max: 4096 };
        // SAFETY: only lowers or raises a limit of this process.
        if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const many) } != 0 {
            return skip("4,096 descriptors are not allowed here");
        }
        // A crowd that takes as long to come as a stranger may stay shows nothing of the bound by number.
        let shown = (0..8).any(|_| {
            let (before, start) = (Budget::process().used(), Instant::now());
            // All are refused, and none hangs up.
            let mut crowd: Vec<Rogue> = (0..CROWD)
                .map(|_| {
                    let mut rogue = Rogue::new(&s.config, &s.token);
                    rogue.version_nine();
                    rogue
                })
                .collect();
            let there = crowd.iter_mut().filter_map(|rogue| (!rogue.is_over()).then_some(())).count();
            let used = Budget::process().used().saturating_sub(before);
            let in_time = start.elapsed() < Duration::from_nanos(GREETING_NS);
            assert!(there <= MOST, "{there} are there");
            assert!(there == MOST || !in_time, "only {there} are there before their time is up");
            let each = used / MOST as u64;
            assert!(each <= 16 << 10, "each costs {each} bytes");
            in_time
        });
        s.is_well();
        if !shown {
            skip("160 clients take longer to connect than a stranger may stay");
        }
    }
}

fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    text.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

isolated! {
    limit 300;
    #[cfg_attr(miri, ignore = "uses a library")]
    fn quiet_connections_take_little_memory() {
        const CONNECTIONS: usize = 50;
        let _watchdog = Watchdog::arm(Duration::from_secs(300), "quiet connections");
        // Frames as they are by default: two megabytes for each connection and end, if they were all touched.
        let Some(mut s) = scene_with(OfiConfig::default().frame, |_| ()) else { return };
        let listener = s.nic.listen(&"quiet".parse().unwrap(), 4).unwrap();
        let (limit, before) = (Some(Duration::from_secs(30)), resident());
        for _ in 0..CONNECTIONS {
            let caller = s.nic.create_vi(ViAttributes::new(s.tag)).unwrap();
            s.nic.connect_start(caller, None, &"quiet".parse().unwrap(), &[], limit).unwrap();
            let asked = s.nic.wait_listener(listener, limit).unwrap();
            let called = s.nic.create_vi(ViAttributes::new(s.tag)).unwrap();
            s.nic.accept(asked, called).unwrap();
            s.nic.connect_finish(caller).unwrap();
        }
        let each = resident().saturating_sub(before) / CONNECTIONS;
        assert!(each < 512 << 10, "a connection with both its ends takes {each} bytes");
    }
}
