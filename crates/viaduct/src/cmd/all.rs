//! `viaduct bench all`: every case of the registry, one after the other, within a time limit.

use std::io::{self, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Result;
use viaduct_bench::{Case, cases, suite};

use crate::cli::{BenchArgs, BenchFormat};
use crate::cmd::bench::{self, Measured};
use crate::output::sink::Sink;

/// Within these the suite ends on two cores: three minutes and forty are promised, the rest is kept back.
const QUICK: Duration = Duration::from_secs(150);
const WHOLE: Duration = Duration::from_secs(36 * 60);

pub(crate) fn run(args: &BenchArgs) -> Result<ExitCode> {
    let mut base = bench::settings(args)?;
    if args.quick {
        base.launches = 1;
    }
    let mut sink = Sink::open(args)?;
    let left_out = args.skip.iter().map(|name| Case::find(name)).collect::<Result<Vec<_>, _>>()?;
    let wanted = |case: &&&Case| left_out.iter().all(|other| other.name != case.name);
    let cases: Vec<&Case> = cases::ALL.iter().filter(wanted).copied().collect();
    let mut pace = suite::Pace::new(if args.quick { QUICK } else { WHOLE }, cases.len());
    let (start, mut first) = (Instant::now(), true);
    let (mut invalid, mut failed) = (Vec::new(), Vec::new());
    for case in &cases {
        let measured = pace
            .next(case, &base)
            .map_err(anyhow::Error::from)
            .and_then(|settings| Ok((bench::measure(case, &settings, &mut sink)?, settings)));
        match measured {
            Ok((Measured { lines, valid }, settings)) => {
                bench::show(args.format, first, case, &settings, &lines)?;
                first = false;
                if args.format == BenchFormat::Table {
                    writeln!(io::stdout())?;
                }
                if !valid {
                    invalid.push(case.name);
                }
            }
            Err(error) if crate::is_closed_pipe(&error) => return Err(error),
            Err(error) => {
                // The others are worth having nevertheless.
                crate::complain(&error.context(format!("case {}", case.name)))?;
                failed.push(case.name);
            }
        }
    }
    let mut err = io::stderr().lock();
    writeln!(err, "{} cases in {} s", cases.len(), start.elapsed().as_secs())?;
    if let Some(path) = &args.output {
        writeln!(
            err,
            "results are in {0}; see them with: viaduct report {0} -o report.html",
            path.display()
        )?;
    }
    for (names, what) in [(&invalid, "data did not arrive intact"), (&failed, "could not be measured")] {
        if !names.is_empty() {
            writeln!(err, "{what}: {}", names.join(", "))?;
        }
    }
    Ok(match (invalid.is_empty(), failed.is_empty()) {
        (false, _) => ExitCode::from(1),
        (true, false) => ExitCode::from(2),
        (true, true) => ExitCode::SUCCESS,
    })
}
