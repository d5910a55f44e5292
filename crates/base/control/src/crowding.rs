//! Whether more blocking reads at once would pay.
//!
//! A server or a disk that is not yet busy answers every request as fast as it answers a single one. Once
//! it is busy, further requests only wait for each other. So the time of a file with many in flight is
//! compared with the shortest time of any file. If some files are in a cache, the shortest time is that of
//! a hit, and files count as slow: no more reads are started than without this rule.

/// Files whose mean time is compared.
const SAMPLE: u64 = 64;
/// Time of a file, in shortest times, up to which more requests pay.
const FLAT: f64 = 1.25;

/// What is known of the times of files that began after some moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Crowding {
    /// Too few files have ended.
    Unknown,
    /// Files take about as long as a single one.
    Free,
    /// Files wait for each other.
    Crowded,
}

impl Crowding {
    /// Compares `files` that took `total_ns` together with the shortest time of any file.
    pub fn of(files: u64, total_ns: u64, shortest_ns: u64) -> Self {
        if files < SAMPLE {
            return Self::Unknown;
        }
        let mean_ns = total_ns as f64 / files as f64;
        if mean_ns <= FLAT * shortest_ns as f64 { Self::Free } else { Self::Crowded }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `in_flight` requests at a server with `units` that takes `each_ns`. Returns the mean time.
    fn mean_ns(in_flight: u64, units: u64, each_ns: u64) -> u64 {
        each_ns * in_flight.max(units) / units
    }

    #[test]
    fn a_server_is_crowded_when_requests_wait_for_each_other() {
        let with = |in_flight, units| {
            Crowding::of(1000, 1000 * mean_ns(in_flight, units, 20_000_000), 20_000_000)
        };
        assert_eq!(with(256, 1024), Crowding::Free);
        assert_eq!(with(256, 240), Crowding::Free, "a short queue");
        assert_eq!(with(256, 200), Crowding::Crowded);
        assert_eq!(with(512, 256), Crowding::Crowded);
    }

    #[test]
    fn few_files_decide_nothing() {
        assert_eq!(Crowding::of(SAMPLE - 1, 1, 1), Crowding::Unknown);
        assert_eq!(Crowding::of(SAMPLE, SAMPLE, 1), Crowding::Free);
    }

    #[test]
    fn a_cache_in_front_of_the_server_is_not_taken_for_an_idle_server() {
        assert_eq!(Crowding::of(1000, 1000 * 5_000_000, 10_000), Crowding::Crowded);
    }
}
