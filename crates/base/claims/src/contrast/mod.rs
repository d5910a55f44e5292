//! The kinds of contrast that can test a claim.
//!
//! Each kind is one file with a struct for the TOML fields, an implementation of `Kind` and tests.
//! To add a kind, write its file and add a line to the list below.

pub mod correlation;
pub mod crossing;
pub mod curve;
pub mod every;
pub mod gain;
pub(crate) mod kind;
pub mod ladder;
pub mod linear;
pub mod media;
pub mod optimum;
pub mod published;
pub mod ratio;
pub mod ratio_of_best;
pub mod share;
pub mod untested;

use crate::evaluation::runs::fixed_demand_ns;
use crate::location::Location;
use ioloom_model::Compute;
use kind::{COMPUTE_AXIS, Kind};
use serde::Deserialize;
use std::collections::BTreeMap;

macro_rules! kinds {
    ($($name:literal => $variant:ident($kind:ty),)*) => {
        /// One test of a claim.
        #[derive(Debug, Clone, PartialEq, Deserialize)]
        #[serde(tag = "kind")]
        pub enum Contrast {
            $(
                #[doc = concat!("A contrast of kind `", $name, "`.")]
                #[serde(rename = $name)]
                $variant($kind),
            )*
        }

        impl Contrast {
            /// Returns the name of the kind in claims files.
            pub const fn kind(&self) -> &'static str {
                match self {
                    $(Self::$variant(_) => $name,)*
                }
            }

            pub(crate) fn as_kind(&self) -> &dyn Kind {
                match self {
                    $(Self::$variant(kind) => kind,)*
                }
            }
        }
    };
}

kinds! {
    "ratio" => Ratio(ratio::Ratio),
    "ratio-of-best" => RatioOfBest(ratio_of_best::RatioOfBest),
    "ladder" => Ladder(ladder::Ladder),
    "linear" => Linear(linear::Linear),
    "crossing" => Crossing(crossing::Crossing),
    "share" => Share(share::Share),
    "gain" => Gain(gain::Gain),
    "optimum" => Optimum(optimum::Optimum),
    "correlation" => Correlation(correlation::Correlation),
    "curve" => Curve(curve::Curve),
    "every" => Every(every::Every),
    "media" => Media(media::Media),
    "published" => Published(published::Published),
    "untested" => Untested(untested::Untested),
}

impl Contrast {
    /// Returns the locations whose runs it needs; empty if it needs no runs.
    pub fn locations(&self) -> Vec<&Location> {
        self.as_kind().locations()
    }

    /// Returns the arms and families it refers to.
    pub fn patterns(&self) -> Vec<&str> {
        self.as_kind().patterns()
    }

    /// Returns the arms and families that it needs at each location.
    pub fn needs(&self) -> Vec<(&Location, Vec<&str>)> {
        self.as_kind().needs()
    }

    /// Reports whether it compares runs on several media.
    pub fn on_several_media(&self) -> bool {
        self.as_kind().on_several_media()
    }

    /// Returns the factor whose levels it uses.
    pub fn axis(&self) -> Option<&str> {
        self.as_kind().axis()
    }

    /// Reports whether it uses an arm of its families with these factors and this compute: if it names
    /// levels, only those.
    pub fn uses(&self, factors: &BTreeMap<String, f64>, compute: &Compute) -> bool {
        let kind = self.as_kind();
        let level = kind.axis().and_then(|axis| match axis {
            COMPUTE_AXIS => fixed_demand_ns(compute),
            _ => factors.get(axis).copied(),
        });
        level.is_none_or(|level| kind.uses_level(level))
    }

    /// Returns the metrics and formulas it uses.
    pub fn metrics(&self) -> Vec<&str> {
        self.as_kind().metrics()
    }
}
