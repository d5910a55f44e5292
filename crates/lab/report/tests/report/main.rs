//! The report from outside: the page, its texts and pictures, and timelines, all of invented runs.

mod chapters;
mod full;
mod page;
#[path = "../../examples/sample/records.rs"]
mod records;
#[path = "../../examples/timeline/synthetic.rs"]
mod synthetic;
mod timeline;
