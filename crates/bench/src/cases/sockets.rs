//! Sockets (SOVIA, section 5.2, figure 9a): latency of streams with the paper's optimisations one after the other, between
//! native VIA and TCP.
//!
//! Beside the curves of the figure: the alternative of section 3.1.1 that asks before it sends, blocking against polling,
//! and what it costs to wake a thread (T_sync), which is what HANDLER costs more than SINGLE. Figure 9b is `sockets-stream`.

pub(crate) mod sync;

use viaduct_sovia::{Config, Step, Waiting};

use crate::cases::logp::derived;
use crate::cases::{Apart, Case, References, shape, variants};
use crate::error::Result;
use crate::layers::via::{Place, plain};
use crate::layers::{Layer, sovia, three_way};
use crate::loops::End;
use crate::plan::{Motion, Point, Settings, Variant, Wait};
use crate::schema::{Line, Measurement};

pub(super) const CASE: Case = Case {
    name: "sockets-latency",
    about: "how long a message takes over a stream of SOVIA, step by step, between native VIA and TCP",
    unit: "us",
    lower_is_better: true,
    sizes: SIZES,
    value: |ns, _| ns / 1e3,
    points: |settings, sizes| Ok(points(settings, sizes, Motion::PingPong)),
    timed: "ping-pong of one message, written and read as a stream by both ends, one way = half of the round trip. via: \
            messages of VIA without a stream; three-way: of VIA, each asked for and granted before it is sent; SINGLE to \
            COMBINE: the paper's steps, which poll, but for HANDLER, whose handler thread sleeps when nothing comes; \
            -blocking: the same with calls that sleep, COMBINE-blocking what programs get that set nothing; T_sync: waking a thread that waits for a condition, on this core",
    window: 1,
    axis: "",
    references: References::All,
    logp: Apart::Not,
    via: build,
    ofi: None,
    derive: handler_cost,
};

/// Those of figure 9.
pub(super) const SIZES: &[usize] = &[8, 64, 256, 1 << 10, 2 << 10, 4 << 10, 16 << 10, 32 << 10];

/// Native VIA.
const NATIVE: &str = "via";
const THREE_WAY: &str = "three-way";
const T_SYNC: &str = "T_sync";
const BLOCKING: &str = "-blocking";
/// What the others are called that are no curve of the paper's.
const DIFFERENCE: &str = "HANDLER-SINGLE";

pub(super) fn points(settings: &Settings, sizes: &[usize], motion: Motion) -> Vec<Point> {
    sizes.iter().map(|size| point(settings, *size, motion, sizes.first() == Some(size))).collect()
}

fn point(settings: &Settings, size: usize, motion: Motion, first: bool) -> Point {
    // As `bandwidth` and `rate` have it: what native VIA is at its best with.
    let (window, batch) = if motion == Motion::PingPong {
        (1, 1)
    } else if size <= 2 << 10 {
        (64, 16)
    } else {
        (4, 1)
    };
    let shape = shape(motion, size, window).with("batch", batch);
    let more = first || !settings.quick;
    let mut all = Vec::new();
    for layer in &settings.layers {
        let of = |shape: &Variant| variants(settings, &[*layer], shape).into_iter();
        match layer {
            // Both forms of it are there already.
            Layer::Tcp => {}
            Layer::Via(_) => {
                all.extend(of(&shape.clone().on(NATIVE, None)));
                for step in Step::ALL {
                    let steps = of(&shape.clone().on(step.name(), None));
                    all.extend(steps.map(|variant| match step {
                        Step::Handler => Variant { wait: Wait::Block, ..variant }.with("helped", 1),
                        _ => variant,
                    }));
                }
                if more {
                    all.extend(of(&shape.clone().on(THREE_WAY, None)));
                    // The last is what programs get that set nothing.
                    for step in [Step::Dacks, Step::Combine] {
                        let blocking = of(&shape.clone().on(&format!("{}{BLOCKING}", step.name()), None));
                        all.extend(blocking.map(|variant| Variant { wait: Wait::Block, ..variant }));
                    }
                }
                if first && motion == Motion::PingPong && Some(layer) == settings.layers.first() {
                    let shape = self::shape(Motion::Calls, size, 1).on(T_SYNC, None).with("helped", 1);
                    let sync = of(&shape.with("count", 400).with("batch", 20));
                    all.extend(sync.map(|variant| Variant { wait: Wait::Block, ..variant }));
                }
            }
            _ => all.extend(of(&shape)),
        }
    }
    for tcp in [Layer::TcpNodelay, Layer::TcpNagle] {
        if !settings.layers.contains(&tcp) {
            all.extend(variants(settings, &[tcp], &shape));
        }
    }
    Point { size, variants: all }
}

pub(super) fn build(place: Place) -> Result<Box<dyn End>> {
    let series = place.variant.series.clone();
    match series.as_str() {
        THREE_WAY => three_way::end(place),
        T_SYNC => sync::end(place),
        _ => match settings(&place.variant, place.control.providers()) {
            Some(config) => sovia::end(place, config),
            None => plain(place),
        },
    }
}

/// With which settings a variant has its streams; none if it has no stream.
pub(crate) fn settings(variant: &Variant, providers: &viaduct_providers::Config) -> Option<Config> {
    let name = variant.series.trim_end_matches(BLOCKING);
    let step = Step::ALL.iter().find(|step| step.name() == name)?;
    let waiting = match variant.wait {
        Wait::Poll => Waiting::Polling,
        Wait::Block => Waiting::Blocking,
    };
    Some(Config { waiting, spin: providers.wait.spin, ..Config::step(*step) })
}

/// What the handler thread costs, to be held against T_sync.
fn handler_cost(lines: &[Measurement]) -> Vec<Line> {
    let single = Step::Single.name();
    let of = |handler: &Measurement| {
        let other = lines.iter().find(|l| {
            l.series == single
                && (&l.layer, &l.placement, l.size) == (&handler.layer, &handler.placement, handler.size)
        })?;
        Some(derived(handler, DIFFERENCE, handler.p50? - other.p50?))
    };
    lines.iter().filter(|l| l.series == Step::Handler.name()).filter_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::sample;

    #[test]
    fn every_curve_of_figure_9_is_planned() {
        let settings = Settings::new(vec![Layer::Via("shm"), Layer::Tcp], [0, 1]);
        let planned: Vec<String> =
            points(&settings, &[8], Motion::PingPong).remove(0).variants.iter().map(Variant::label).collect();
        assert_eq!(
            planned,
            [
                "shm/via",
                "shm/SINGLE",
                "shm/HANDLER",
                "shm/FLOWCTRL",
                "shm/DACKS",
                "shm/COMBINE",
                "shm/three-way",
                "shm/DACKS-blocking",
                "shm/COMBINE-blocking",
                "shm/T_sync",
                "tcp-nodelay",
                "tcp-nagle"
            ]
        );
        let quick = Settings { quick: true, ..settings };
        let few = points(&quick, &[8, 64], Motion::Stream);
        assert_eq!(few.iter().map(|p| p.variants.len()).collect::<Vec<_>>(), [11, 8]);
    }

    #[test]
    fn streams_have_the_settings_of_their_step_and_nothing_else_has_any() {
        let providers = viaduct_providers::Config::default();
        let variant = |series: &str| shape(Motion::PingPong, 8, 1).on(series, None);
        let single = settings(&variant("SINGLE"), &providers).unwrap();
        assert_eq!((single.window, single.waiting), (1, Waiting::Polling));
        let blocking = Variant { wait: Wait::Block, ..variant("DACKS-blocking") };
        assert_eq!(settings(&blocking, &providers).unwrap().waiting, Waiting::Blocking);
        let usual = Variant { wait: Wait::Block, ..variant("COMBINE-blocking") };
        assert_eq!(
            settings(&usual, &providers),
            Some(Config::default()),
            "what programs get that set nothing"
        );
        assert!(settings(&variant(NATIVE), &providers).is_none());
        assert!(settings(&variant(THREE_WAY), &providers).is_none());
    }

    #[test]
    fn the_handler_costs_what_it_takes_more() {
        let line = |series: &str, us| Measurement { series: series.into(), p50: Some(us), ..sample() };
        let lines = [line("SINGLE", 1.0), line("HANDLER", 18.0), line("DACKS", 1.0)];
        let [Line::Measurement(cost)] = &handler_cost(&lines)[..] else { panic!("one difference") };
        assert_eq!((cost.series.as_str(), cost.p50), (DIFFERENCE, Some(17.0)));
    }
}
