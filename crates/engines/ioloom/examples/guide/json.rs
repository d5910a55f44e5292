//! Sums a field of JSON documents, and reports those that are damaged with their typed errors.

use ioloom::{Cause, OnError};
use serde_json::Value;
use std::io::Write;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let root = std::env::args_os().nth(1).unwrap_or_else(|| ".".into());
    let run = ioloom::tree(root)
        .on_error(OnError::Collect)
        .try_map(|file| {
            let document: Value = serde_json::from_slice(file.bytes())?;
            Ok::<_, serde_json::Error>(document["price"].as_f64().unwrap_or(0.0))
        })
        .fold(|| 0.0, |sum, price| *sum += price, |sum, other| *sum += other)?;
    let mut out = std::io::stdout().lock();
    writeln!(out, "sum {:.2} of {} documents", run.value, run.measured.files)?;
    for error in &run.errors {
        match &error.cause {
            Cause::Function(wrong) => {
                writeln!(out, "line {} is not JSON: {}", wrong.line(), error.path.display())?;
            }
            _ => writeln!(out, "{error}")?,
        }
    }
    if run.failed > 0 {
        return Err(format!("failures: {}", run.failed).into());
    }
    Ok(())
}
