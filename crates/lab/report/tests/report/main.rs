//! The public interface of the report with synthetic runs: pages, texts, charts and timelines.

mod advice;
mod answer;
mod chapters;
mod choice;
mod export;
mod full;
mod markdown;
mod page;
#[path = "../../examples/sample/records.rs"]
mod records;
mod sections;
#[path = "../../examples/timeline/synthetic.rs"]
mod synthetic;
mod timeline;
mod zeros;
