//! What is drawn, before it is drawn: curves of spots, bars of parts, dots with whiskers.

/// One place of a curve.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Spot {
    pub(crate) x: f64,
    pub(crate) y: f64,
    /// 95 % interval.
    pub(crate) interval: Option<[f64; 2]>,
    pub(crate) noisy: bool,
}

/// Spots that belong together.
#[derive(Clone, Debug)]
pub(crate) struct Curve {
    pub(crate) label: String,
    /// By rising x.
    pub(crate) spots: Vec<Spot>,
    /// In another core placement than most.
    pub(crate) aside: bool,
    /// Its colour and the shape of its spots, by number.
    pub(crate) look: usize,
}

impl Curve {
    pub(crate) fn at(&self, x: f64) -> Option<&Spot> {
        self.spots.iter().find(|spot| spot.x == x)
    }
}

/// A value that a paper gives: at a place, or for all places.
#[derive(Clone, Debug)]
pub(crate) struct Past {
    pub(crate) label: String,
    pub(crate) x: Option<f64>,
    pub(crate) y: f64,
}

/// What the numbers along an edge are.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Axis {
    pub(crate) label: String,
    /// Bytes, written with K and M.
    pub(crate) bytes: bool,
}

impl Axis {
    pub(crate) fn new(label: impl Into<String>) -> Axis {
        Axis { label: label.into(), bytes: false }
    }

    pub(crate) fn size() -> Axis {
        Axis { label: "message size in bytes".into(), bytes: true }
    }

    /// A number on this axis.
    pub(crate) fn show(&self, value: f64) -> String {
        if self.bytes && value >= 0.0 && value.fract() == 0.0 {
            return crate::size::show(value as usize);
        }
        super::text::short(value)
    }
}

/// Curves over an axis.
#[derive(Clone, Debug)]
pub(crate) struct Chart {
    /// What this chart shows, if the figure has several.
    pub(crate) title: String,
    pub(crate) x: Axis,
    pub(crate) y: Axis,
    pub(crate) curves: Vec<Curve>,
    pub(crate) past: Vec<Past>,
}

/// Single values beside each other.
#[derive(Clone, Debug)]
pub(crate) struct Dots {
    pub(crate) title: String,
    pub(crate) axis: Axis,
    pub(crate) rows: Vec<(String, Spot)>,
}

/// Values made up of parts, each drawn as its share.
#[derive(Clone, Debug)]
pub(crate) struct Bars {
    pub(crate) unit: String,
    pub(crate) parts: Vec<String>,
    pub(crate) rows: Vec<Bar>,
}

/// One value made up of parts.
#[derive(Clone, Debug)]
pub(crate) struct Bar {
    pub(crate) label: String,
    pub(crate) values: Vec<f64>,
    /// From a paper.
    pub(crate) past: bool,
}

/// One picture.
#[derive(Clone, Debug)]
pub(crate) enum Picture {
    Chart(Chart),
    Dots(Dots),
    Bars(Bars),
}

/// A table of text; the first column names the rows.
#[derive(Clone, Debug, Default)]
pub(crate) struct Grid {
    pub(crate) heads: Vec<String>,
    pub(crate) rows: Vec<Vec<String>>,
}

/// A figure of the report.
#[derive(Clone, Debug, Default)]
pub(crate) struct Figure {
    /// Its name in the page: `fig-3-1`.
    pub(crate) id: String,
    /// `Figure 3.1`, or empty.
    pub(crate) number: String,
    pub(crate) title: String,
    /// Paragraphs.
    pub(crate) words: Vec<String>,
    pub(crate) pictures: Vec<Picture>,
    pub(crate) grids: Vec<Grid>,
    /// The command that makes its data.
    pub(crate) command: String,
}

impl Figure {
    /// There is something to see.
    pub(crate) fn has_data(&self) -> bool {
        !self.pictures.is_empty() || !self.grids.is_empty()
    }
}
