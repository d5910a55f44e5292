//! What a worker publishes about itself. Nothing depends on it.

use crate::instance::Instance;
use crate::link::now_ns;
use crate::terms::WorkerReport;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Time between two reports of a worker.
const REPORT_TIME: Duration = Duration::from_secs(1);

/// Publishes the report every second while the server is connected.
pub(crate) async fn keep_publishing(queue: Instance, report: Arc<Mutex<WorkerReport>>) {
    loop {
        let now = report.lock().unwrap_or_else(PoisonError::into_inner).clone();
        publish(&queue, now).await;
        tokio::time::sleep(REPORT_TIME).await;
    }
}

pub(crate) async fn publish(queue: &Instance, mut report: WorkerReport) {
    if !queue.is_connected() {
        return;
    }
    report.seen_ns = now_ns();
    let host: String = report.host.chars().filter(|c| c.is_ascii_alphanumeric()).collect();
    let id = format!("{host}-{}-{}", report.pid, report.started_ns);
    let subject = queue.subject(&format!("worker.{id}"));
    let payload = serde_json::to_vec(&report).unwrap_or_default();
    let _ = queue.client.publish(subject, payload.into()).await;
}
