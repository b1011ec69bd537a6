//! Inputs that are sorted already as one: read side by side, merged, written. Memory holds a few buffers of each.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use viaduct_river::disk::{Partial, StreamSource};
use viaduct_river::{Buffer, Edge, MemPool, MergeSource, RecordFormat, Sink, Source, records};

use crate::Error;
use crate::kernel::Outcome;
use crate::order::Order;
use crate::sort::{Progress, Settings};

/// Bytes of a buffer at most and at least.
const ROOM: (usize, usize) = (16 << 10, 1 << 20);

/// An input, with the sum of what was read of it.
struct Summed {
    source: StreamSource,
    format: Arc<dyn RecordFormat>,
    /// `None` if no sum is wanted.
    sum: Option<Mutex<u128>>,
}

impl Source for Summed {
    fn pull(&self) -> Result<Option<Buffer>, viaduct_river::Error> {
        let buffer = self.source.pull()?;
        if let (Some(sum), Some(buffer)) = (&self.sum, &buffer) {
            *sum.lock().unwrap_or_else(PoisonError::into_inner) += sum_of(&*self.format, buffer.data());
        }
        Ok(buffer)
    }

    fn edge(&self) -> &Edge {
        self.source.edge()
    }
}

fn sum_of(format: &dyn RecordFormat, bytes: &[u8]) -> u128 {
    records(format, bytes).map(|record| u128::from(crc32fast::hash(record))).sum()
}

/// What is merged, with a name for messages.
pub(crate) type Open = (PathBuf, Box<dyn std::io::Read + Send>);

/// Merges `inputs` into `sink`. Gives what was done, and the edges of the inputs.
pub(crate) fn merge<O: Order>(
    inputs: Vec<Open>,
    sink: &dyn Sink,
    order: &O,
    settings: &Settings,
    progress: &Progress,
) -> Result<(Outcome, Vec<viaduct_river::EdgeCounts>), Error> {
    let start = Instant::now();
    let format = settings.format();
    let each = settings.budget() as usize / (4 * inputs.len().max(1));
    let room = each.clamp(ROOM.0, ROOM.1);
    let partial: Partial = settings.partial;
    let open = |input: Open| {
        let name = format!("input {}", input.0.display());
        let pool = MemPool::new(2, room)?;
        let source = StreamSource::new(&name, vec![input], format.clone(), pool, partial);
        let sum = settings.checksum.then(|| Mutex::new(0));
        Ok(Arc::new(Summed { source, format: format.clone(), sum }))
    };
    let inputs = inputs.into_iter().map(open).collect::<Result<Vec<_>, Error>>()?;
    let sources = inputs.iter().map(|input| input.clone() as Arc<dyn Source>).collect();
    let compare = |a: &[u8], b: &[u8]| order.compare(a, b);
    let merged = MergeSource::new("merged", sources, format.clone(), compare, MemPool::new(2, room)?);
    let mut outcome = Outcome::default();
    let mut last: Vec<u8> = Vec::new();
    while let Some(mut buffer) = merged.pull()? {
        progress.check()?;
        progress.add(buffer.len() as u64);
        outcome.records_in += buffer.records();
        outcome.bytes_in += buffer.len() as u64;
        if settings.unique {
            keep_first(&mut buffer, &last, &*format, order);
        }
        if settings.checksum {
            in_order(&buffer, &last, &*format, order)?;
            outcome.sum_out += sum_of(&*format, buffer.data());
        }
        if let Some(record) = records(&*format, buffer.data()).last() {
            last.clear();
            last.extend_from_slice(record);
        }
        buffer.set_position(outcome.bytes_out);
        outcome.records_out += buffer.records();
        outcome.bytes_out += buffer.len() as u64;
        sink.put(buffer)?;
    }
    let sums = inputs.iter().filter_map(|input| input.sum.as_ref());
    outcome.sum_in = sums.map(|sum| *sum.lock().unwrap_or_else(PoisonError::into_inner)).sum();
    if settings.checksum && !settings.unique && outcome.sum_in != outcome.sum_out {
        return Err(Error::Proof("the checksum of the output is not that of the inputs".into()));
    }
    outcome.write_ns = start.elapsed().as_nanos() as u64;
    Ok((outcome, inputs.iter().map(|input| input.edge().counts()).collect()))
}

/// Drops records whose key is that of the one before; `last` is the one before the buffer, empty if there is none.
fn keep_first<O: Order>(buffer: &mut Buffer, last: &[u8], format: &dyn RecordFormat, order: &O) {
    let (mut read, mut written, mut kept) = (0, 0, 0);
    let mut before: Option<(usize, usize)> = None;
    let data = buffer.data_mut();
    while let Some(len) = format.record_len(&data[read..]).filter(|_| read < data.len()) {
        let record = &data[read..read + len];
        let previous = before.map_or(last, |(start, end)| &data[start..end]);
        if previous.is_empty() || !order.same_key(previous, record) {
            data.copy_within(read..read + len, written);
            before = Some((written, written + len));
            written += len;
            kept += 1;
        }
        read += len;
    }
    buffer.truncate(written);
    buffer.set_records(kept);
}

fn in_order<O: Order>(
    buffer: &Buffer,
    last: &[u8],
    format: &dyn RecordFormat,
    order: &O,
) -> Result<(), Error> {
    let mut before = last;
    for record in records(format, buffer.data()) {
        if !before.is_empty() && order.compare(before, record).is_gt() {
            let text = String::from_utf8_lossy(&record[..record.len().min(60)]).trim_end().to_owned();
            return Err(Error::Usage(format!(
                "an input of -m is not in order at `{text}`; hint: leave -m out, or see -c"
            )));
        }
        before = record;
    }
    Ok(())
}
