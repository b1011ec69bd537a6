//! The rank's side of PMI-1: one question, one answer, on a stream that the launcher left open or listens for.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;

use super::wire::{self, LINE_MAX, Message};
use super::{KEY_MAX, VALUE_MAX};
use crate::error::Error;

/// Every launcher reads a line of so many characters.
const LINE_SAFE: usize = 1000;

/// A connection to the launcher.
#[derive(Debug)]
pub struct Client {
    stream: BufReader<Stream>,
    space: String,
    value_max: usize,
    key_max: usize,
}

impl Client {
    /// Takes over the stream that the launcher left open for us, and says hello.
    ///
    /// # Errors
    /// If the launcher does not answer, or speaks something else.
    pub fn on_stream(stream: UnixStream) -> Result<Client, Error> {
        Client::hello(Stream::Unix(stream), None)
    }

    /// Begins on a connection that stands.
    ///
    /// # Errors
    /// As above.
    pub fn on_connection(stream: TcpStream) -> Result<Client, Error> {
        Client::hello(Stream::Tcp(stream), None)
    }

    /// Connects to a launcher that listens, as rank `id` of it.
    ///
    /// # Errors
    /// As above, and if there is no server.
    pub fn connect(address: &str, id: &str) -> Result<Client, Error> {
        let failed = |why| Error::Pmi { what: "connecting to PMI_PORT", why };
        let stream = TcpStream::connect(address).map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        Client::hello(Stream::Tcp(stream), Some(id))
    }

    /// The name of the job's key-value space: no other job of this launcher has it.
    pub fn space(&self) -> &str {
        &self.space
    }

    /// Most characters of a value under a key of so many: by what the launcher says, and so that a line stays below
    /// what Slurm reads at once (1,024 bytes, whatever it says of values).
    pub fn value_max(&self, key: usize) -> usize {
        let around = "cmd=put kvsname= key= value=\n".len() + self.space.len() + key;
        (self.value_max - 1).min(LINE_SAFE.saturating_sub(around))
    }

    /// Makes a pair known; others see it after the next [`barrier`](Self::barrier).
    ///
    /// # Errors
    /// If key or value has blanks or is too long, or the launcher refuses.
    pub fn put(&mut self, key: &str, value: &str) -> Result<(), Error> {
        if !wire::is_word(key, self.key_max) || !wire::is_word(value, self.value_max) {
            return Err(Error::PmiSaid(
                "a key or a value is empty, too long, or has a blank in it".to_owned(),
            ));
        }
        let words = [("kvsname", &*self.space.clone()), ("key", key), ("value", value)];
        let answer = self.ask("put", &words, "put_result")?;
        check(&answer)
    }

    /// The value of a key, if there is one.
    ///
    /// # Errors
    /// If the launcher is gone.
    pub fn get(&mut self, key: &str) -> Result<Option<String>, Error> {
        let words = [("kvsname", &*self.space.clone()), ("key", key)];
        let answer = self.ask("get", &words, "get_result")?;
        let message = Message::parse(&answer).expect("ask has parsed it");
        // Launchers say 1 or -1, and some leave rc out.
        let good = message.number("rc").unwrap_or(0) == 0;
        Ok(message.word("value").filter(|_| good).map(str::to_owned))
    }

    /// Waits for all ranks of the job.
    ///
    /// # Errors
    /// If the launcher is gone.
    pub fn barrier(&mut self) -> Result<(), Error> {
        self.ask("barrier_in", &[], "barrier_out").map(|_| ())
    }

    /// Asks the launcher to end the whole job.
    pub fn abort(&mut self, code: i32, why: &str) {
        let (code, why) = (code.to_string(), why.replace('\n', " "));
        let text = wire::line("abort", &[("exitcode", &code), ("message", &why)]);
        // There is no answer, and the caller ends in any case.
        let _ = self.stream.get_mut().write_all(text.as_bytes());
    }

    /// Says that this rank is done. Without it a launcher takes the end of the process for a failure.
    ///
    /// # Errors
    /// If the launcher is gone.
    pub fn finish(&mut self) -> Result<(), Error> {
        self.ask("finalize", &[], "finalize_ack").map(|_| ())
    }

    fn hello(stream: Stream, id: Option<&str>) -> Result<Client, Error> {
        let stream = BufReader::new(stream);
        let mut client = Client { stream, space: String::new(), value_max: VALUE_MAX, key_max: KEY_MAX };
        if let Some(id) = id {
            client.ask("initack", &[("pmiid", id)], "initack")?;
            // The launcher tells size, rank and debug level, each in a line of its own.
            for _ in 0..3 {
                client.read()?;
            }
        }
        let version = [("pmi_version", "1"), ("pmi_subversion", "1")];
        let answer = client.ask("init", &version, "response_to_init")?;
        check(&answer)?;
        let answer = client.ask("get_maxes", &[], "maxes")?;
        let maxes = Message::parse(&answer).expect("ask has parsed it");
        let most = |name, usual: usize| {
            let said = maxes.number(name).and_then(|n| usize::try_from(n).ok());
            said.filter(|n| (16..=LINE_MAX / 2).contains(n)).unwrap_or(usual).min(usual)
        };
        (client.value_max, client.key_max) = (most("vallen_max", VALUE_MAX), most("keylen_max", KEY_MAX));
        let answer = client.ask("get_my_kvsname", &[], "my_kvsname")?;
        let name = Message::parse(&answer).and_then(|message| message.word("kvsname")).unwrap_or_default();
        client.space = name.to_owned();
        Ok(client)
    }

    fn ask(&mut self, command: &str, words: &[(&str, &str)], expect: &str) -> Result<String, Error> {
        let failed = |why| Error::Pmi { what: "writing to the launcher", why };
        self.stream.get_mut().write_all(wire::line(command, words).as_bytes()).map_err(failed)?;
        let answer = self.read()?;
        match Message::parse(&answer) {
            Some(message) if message.command() == expect => Ok(answer),
            _ => Err(Error::PmiSaid(format!("`{}` to `{command}`", answer.trim()))),
        }
    }

    fn read(&mut self) -> Result<String, Error> {
        let failed = |why| Error::Pmi { what: "reading from the launcher", why };
        let mut line = String::new();
        let n = self.stream.by_ref().take(LINE_MAX as u64).read_line(&mut line).map_err(failed)?;
        if n == 0 {
            return Err(failed(std::io::ErrorKind::UnexpectedEof.into()));
        }
        Ok(line)
    }
}

fn check(answer: &str) -> Result<(), Error> {
    match Message::parse(answer).and_then(|message| message.number("rc")) {
        Some(0) | None => Ok(()),
        Some(_) => Err(Error::PmiSaid(answer.trim().to_owned())),
    }
}

/// What a launcher gives.
#[derive(Debug)]
enum Stream {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Read for Stream {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        match self {
            Stream::Unix(stream) => stream.read(buf),
            Stream::Tcp(stream) => stream.read(buf),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, buf: &[u8]) -> std::io::Result<usize> {
        match self {
            Stream::Unix(stream) => stream.write(buf),
            Stream::Tcp(stream) => stream.write(buf),
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A launcher that answers from a script: what hydra 4.0 said, taken down once.
    fn scripted(
        script: &'static [(&'static str, &'static str)],
    ) -> (UnixStream, std::thread::JoinHandle<()>) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let talk = move || {
            let mut lines = BufReader::new(theirs.try_clone().unwrap()).lines();
            let mut theirs = theirs;
            for (line, answer) in script {
                assert_eq!(lines.next().unwrap().unwrap(), *line);
                theirs.write_all(answer.as_bytes()).unwrap();
            }
        };
        (ours, std::thread::spawn(talk))
    }

    #[test]
    fn the_transcript_of_hydra() {
        let (stream, launcher) = scripted(&[
            (
                "cmd=init pmi_version=1 pmi_subversion=1",
                "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n",
            ),
            ("cmd=get_maxes", "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024\n"),
            ("cmd=get_my_kvsname", "cmd=my_kvsname kvsname=kvs_4711_0_99_host\n"),
            ("cmd=put kvsname=kvs_4711_0_99_host key=a value=b", "cmd=put_result rc=0 msg=success\n"),
            ("cmd=barrier_in", "cmd=barrier_out\n"),
            ("cmd=get kvsname=kvs_4711_0_99_host key=a", "cmd=get_result rc=0 msg=success value=b\n"),
            (
                "cmd=get kvsname=kvs_4711_0_99_host key=z",
                "cmd=get_result rc=-1 msg=key_z_not_found value=unknown\n",
            ),
            ("cmd=finalize", "cmd=finalize_ack\n"),
        ]);
        let mut client = Client::on_stream(stream).unwrap();
        assert_eq!(client.space(), "kvs_4711_0_99_host");
        client.put("a", "b").unwrap();
        client.barrier().unwrap();
        assert_eq!(client.get("a").unwrap().as_deref(), Some("b"));
        assert_eq!(client.get("z").unwrap(), None);
        assert!(client.put("with blank", "b").is_err() && client.put("k", &"v".repeat(1024)).is_err());
        client.finish().unwrap();
        launcher.join().unwrap();
    }

    /// What Slurm 22.05 said (`srun --mpi=pmi2`): `rc` comes first, and a key that is not there has no value.
    #[test]
    fn the_transcript_of_slurm() {
        let (stream, launcher) = scripted(&[
            (
                "cmd=init pmi_version=1 pmi_subversion=1",
                "cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1\n",
            ),
            ("cmd=get_maxes", "cmd=maxes rc=0 kvsname_max=256 keylen_max=64 vallen_max=1024\n"),
            ("cmd=get_my_kvsname", "cmd=my_kvsname rc=0 kvsname=8.0\n"),
            ("cmd=put kvsname=8.0 key=a0 value=b", "cmd=put_result rc=0\n"),
            ("cmd=barrier_in", "cmd=barrier_out rc=0\n"),
            ("cmd=get kvsname=8.0 key=a1", "cmd=get_result rc=0 value=b\n"),
            ("cmd=get kvsname=8.0 key=z", "cmd=get_result rc=1\n"),
            ("cmd=finalize", "cmd=finalize_ack rc=0\n"),
        ]);
        let mut client = Client::on_stream(stream).unwrap();
        let line = "cmd=put kvsname=8.0 key=viaduct.0.0.0 value=\n".len() + client.value_max(13);
        assert!(line < 1024, "longer lines it takes for two");
        client.put("a0", "b").unwrap();
        client.barrier().unwrap();
        assert_eq!(client.get("a1").unwrap().as_deref(), Some("b"));
        assert_eq!(client.get("z").unwrap(), None);
        client.finish().unwrap();
        launcher.join().unwrap();
    }

    #[test]
    fn a_launcher_that_goes_or_lies_is_an_error() {
        let (stream, launcher) = scripted(&[("cmd=init pmi_version=1 pmi_subversion=1", "cmd=what rc=0\n")]);
        assert!(matches!(Client::on_stream(stream), Err(Error::PmiSaid(_))));
        launcher.join().unwrap();
        let (stream, theirs) = UnixStream::pair().unwrap();
        drop(theirs);
        assert!(matches!(Client::on_stream(stream), Err(Error::Pmi { .. })));
    }
}
