//! Sources and sinks: the two traits of the river, and the pump between them (Millennium Sort, section 3.2).
//!
//! Both work on whole buffers and are shared: several threads may pull from one source and put into one sink. A source that
//! is pulled by one thread gives its buffers in the order of its stream.

use crate::buffer::Buffer;
use crate::edge::Edge;
use crate::error::Error;

/// What produces buffers, and possibly changes them on the way.
pub trait Source: Send + Sync {
    /// Waits for the next buffer; `None` once the source has run dry.
    fn pull(&self) -> Result<Option<Buffer>, Error>;

    /// What went through.
    fn edge(&self) -> &Edge;
}

/// What consumes buffers: the paper's SinkBuffer.
pub trait Sink: Send + Sync {
    /// Hands a buffer over; waits while the sink has no credit for it.
    fn put(&self, buffer: Buffer) -> Result<(), Error>;

    /// Hands a buffer over if the sink has credit for it now; otherwise the buffer comes back.
    fn try_put(&self, buffer: Buffer) -> Result<Option<Buffer>, Error> {
        self.put(buffer).map(|()| None)
    }

    /// One producer has nothing more to put. Waits until what it has put is safe with the sink.
    fn finish(&self) -> Result<(), Error>;

    /// The producer failed: the consumer is to hear why instead of an end.
    fn fail(&self, error: Error);

    /// What went through.
    fn edge(&self) -> &Edge;
}

/// Moves everything from a source to a sink and finishes the sink. A failure of the source reaches the sink's consumer.
pub fn pump(source: &dyn Source, sink: &dyn Sink) -> Result<(), Error> {
    let moved = move_all(source, sink);
    match moved {
        Ok(()) => sink.finish(),
        Err(error) => {
            sink.fail(error.clone());
            Err(error)
        }
    }
}

/// As [`pump`], with `threads` that pull and put side by side. The first failure is reported.
pub fn pump_with(threads: usize, source: &dyn Source, sink: &dyn Sink) -> Result<(), Error> {
    let moved = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads.max(1))
            .map(|_| {
                scope.spawn(|| {
                    let moved = move_all(source, sink);
                    if let Err(error) = &moved {
                        sink.fail(error.clone());
                    }
                    moved
                })
            })
            .collect();
        let ends = workers.into_iter().map(|worker| worker.join().expect("a pump does not panic"));
        // All are joined before the first failure is looked for.
        ends.collect::<Vec<_>>().into_iter().collect::<Result<(), Error>>()
    });
    moved.and_then(|()| sink.finish())
}

fn move_all(source: &dyn Source, sink: &dyn Sink) -> Result<(), Error> {
    while let Some(buffer) = source.pull()? {
        sink.put(buffer)?;
    }
    Ok(())
}
