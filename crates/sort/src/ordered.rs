//! Whether an input is in order, and where not: `-c` of the sort.

use std::path::PathBuf;

use viaduct_river::disk::StreamSource;
use viaduct_river::{MemPool, RecordFormat, Source, records};

use crate::Error;
use crate::lookout::looked_at;
use crate::order::{AnyOrder, Order};
use crate::sort::{Input, Settings};

/// The first record that is out of order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disorder {
    /// Its file.
    pub path: PathBuf,
    /// Its number there, from 1 on.
    pub number: u64,
    /// The record.
    pub record: Vec<u8>,
}

/// Looks for the first record that comes before the one that it follows, or equals it where keys are to be unique. Each input
/// is looked at alone.
pub fn find_disorder(inputs: Vec<Input>, settings: &Settings) -> Result<Option<Disorder>, Error> {
    for input in inputs {
        let (path, stream): (PathBuf, Box<dyn std::io::Read + Send>) = match input {
            Input::Stream(name, stream) => (name, stream),
            Input::Path(path) => {
                let file = std::fs::File::open(&path);
                let file = file.map_err(|error| viaduct_river::Error::file("opening", &path, error))?;
                (path, Box::new(file))
            }
        };
        let (path, stream) = looked_at((path, stream), settings)?;
        let format = settings.format();
        let pool = MemPool::new(2, 1 << 20)?;
        let source =
            StreamSource::new("input", vec![(path.clone(), stream)], format.clone(), pool, settings.partial);
        let found = match settings.order()? {
            AnyOrder::Fields(order) => look(&source, &*format, &order, settings.unique)?,
            AnyOrder::Text(order) => look(&source, &*format, &order, settings.unique)?,
        };
        if let Some((number, record)) = found {
            return Ok(Some(Disorder { path, number, record }));
        }
    }
    Ok(None)
}

fn look<O: Order>(
    source: &dyn Source,
    format: &dyn RecordFormat,
    order: &O,
    unique: bool,
) -> Result<Option<(u64, Vec<u8>)>, Error> {
    let mut previous: Option<Vec<u8>> = None;
    let mut number = 0;
    while let Some(buffer) = source.pull()? {
        let mut before = previous.as_deref();
        for record in records(format, buffer.data()) {
            number += 1;
            let bad = before.is_some_and(|before| {
                order.compare(before, record).is_gt() || unique && order.same_key(before, record)
            });
            if bad {
                return Ok(Some((number, record.to_vec())));
            }
            before = Some(record);
        }
        previous = before.map(<[u8]>::to_vec);
    }
    Ok(None)
}
