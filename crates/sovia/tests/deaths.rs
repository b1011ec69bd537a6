//! A process killed at any moment of a conversation over streams: while it connects, writes, reads, closes half or all of
//! it. The survivor has read a prefix of what was written, gets an error or the end in bounded time, and keeps nothing.

use crate::world;

use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, mpsc};
use std::thread;
use std::time::Duration;

use viaduct_kit::child::{Program, say};
use viaduct_kit::effort::{rounds, scaled};
use viaduct_kit::leaks::LeakCheck;
use viaduct_kit::watchdog::Watchdog;
use viaduct_sovia::{Config, Sovia, Stream};
use world::{World, hasty};

const LIMIT: Duration = Duration::from_secs(600);
const START: Duration = Duration::from_secs(30);
/// For a survivor to hear of an end.
const NOTICE: Duration = Duration::from_secs(5);

/// What a conversation consists of: pieces that are combined, sent as messages, and written into a ring. After every third
/// one an answer of a byte is waited for.
const PIECES: [usize; 8] = [1, 7, 64, 900, 3_000, 40_000, 120_000, 8];

/// What one of them opens is no leak of the other.
static ALONE: Mutex<()> = Mutex::new(());

fn byte_at(offset: usize) -> u8 {
    (offset * 31 % 251) as u8
}

fn answered(piece: usize) -> bool {
    piece.is_multiple_of(3)
}

/// One conversation, from the side that asks; `how` it ends.
fn talk(sovia: &Sovia, how: u64) -> io::Result<()> {
    let mut stream = sovia.connect("deaths")?;
    let mut offset = 0;
    for (piece, len) in PIECES.into_iter().enumerate() {
        let bytes: Vec<u8> = (offset..offset + len).map(byte_at).collect();
        stream.write_all(&bytes)?;
        offset += len;
        if answered(piece) {
            stream.read_exact(&mut [0])?;
        }
    }
    match how % 3 {
        0 => drop(stream),
        1 => {
            stream.shutdown(Shutdown::Write)?;
            stream.read_to_end(&mut Vec::new())?;
        }
        _ => stream.close()?,
    }
    Ok(())
}

/// The part of the side that answers.
fn listen_to(mut stream: Stream) -> io::Result<()> {
    let mut ends = PIECES.into_iter().enumerate().scan(0, |end, (piece, len)| {
        *end += len;
        Some((piece, *end))
    });
    let mut next = ends.find(|(piece, _)| answered(*piece));
    let (mut buffer, mut offset) = (vec![0; 16 << 10], 0);
    loop {
        let n = stream.read(&mut buffer)?;
        if n == 0 {
            return Ok(());
        }
        let wrong = (0..n).find(|i| buffer[*i] != byte_at(offset + i));
        assert_eq!(wrong, None, "of what was read at {offset}");
        offset += n;
        while let Some((_, end)) = next.filter(|(_, end)| *end <= offset) {
            stream.write_all(&[1])?;
            stream.flush()?;
            next = ends.find(|(piece, e)| answered(*piece) && *e > end);
        }
    }
}

fn serve(sovia: &Sovia, over: &AtomicBool) {
    let listener = sovia.listen("deaths", 4).unwrap();
    while !over.load(Ordering::Relaxed) {
        match listener.accept_timeout(Duration::from_millis(5)) {
            Ok(stream) => expected(listen_to(stream)),
            Err(error) => expected(Err(error)),
        }
    }
}

fn talk_until(sovia: &Sovia, over: &AtomicBool) {
    for how in (0..).take_while(|_| !over.load(Ordering::Relaxed)) {
        expected(talk(sovia, how));
    }
}

/// An end that loses its peer hears one of these.
fn expected(result: io::Result<()>) {
    use ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionRefused, ConnectionReset, NotConnected};
    use ErrorKind::{HostUnreachable, TimedOut, UnexpectedEof, WouldBlock};
    let Err(error) = result else { return };
    let known = [
        BrokenPipe,
        ConnectionAborted,
        ConnectionRefused,
        ConnectionReset,
        HostUnreachable,
        NotConnected,
        TimedOut,
        UnexpectedEof,
        WouldBlock,
    ];
    assert!(known.contains(&error.kind()), "{error:?}");
}

viaduct_kit::child!(TALKER, |args| {
    let sovia = World::at("shm", args[0].as_ref()).open(&hasty(&Config::default()));
    say("up");
    talk_until(&sovia, &AtomicBool::new(false));
});

viaduct_kit::child!(SERVER, |args| {
    let sovia = World::at("shm", args[0].as_ref()).open(&hasty(&Config::default()));
    say("up");
    serve(&sovia, &AtomicBool::new(false));
});

/// Delays that are spread over some conversations, each another one.
fn moment(round: u64) -> Duration {
    Duration::from_micros(round.wrapping_mul(7_919) % 12_000)
}

/// Kills `child` again and again, each time at another moment, while `survivor` talks with it until it is told to end.
fn survive(victims: &str, child: &Program, survivor: fn(&Sovia, &AtomicBool)) {
    let _watchdog = Watchdog::arm(LIMIT, &format!("deaths of {victims}"));
    let _alone = ALONE.lock().unwrap_or_else(|e| e.into_inner());
    let world = World::new("shm");
    // What a process has once and for all.
    drop(world.pair(&hasty(&Config::default())));
    let leaks = LeakCheck::start_with_folders([world.folder()]);
    for round in 0..rounds(20, 400) {
        let (sovia, over) = (world.open(&hasty(&Config::default())), AtomicBool::new(false));
        let mut child = child.spawn(&[world.folder()]);
        child.expect_line("up", scaled(START));
        let (ended, end) = mpsc::channel();
        thread::scope(|scope| {
            scope.spawn(|| {
                survivor(&sovia, &over);
                ended.send(()).unwrap();
            });
            thread::sleep(moment(round));
            child.kill();
            over.store(true, Ordering::Relaxed);
            let noticed = end.recv_timeout(scaled(NOTICE));
            assert!(noticed.is_ok(), "round {round}: waits for one of the {victims}, which is dead");
        });
        assert_eq!(sovia.activity().open, 0, "round {round}");
    }
    // What a dead process left of its name goes with the next process that takes it.
    drop(world.open(&hasty(&Config::default())).listen("deaths", 1).unwrap());
    leaks.settle(scaled(START)).finish();
}

#[test]
fn the_asking_end_may_die_at_any_step() {
    survive("clients", &TALKER, serve);
}

#[test]
fn the_answering_end_may_die_at_any_step() {
    survive("servers", &SERVER, talk_until);
}
