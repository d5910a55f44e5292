//! The concurrency models. Each one takes listeners and the service, and returns after a stop was
//! requested and its requests are finished.

mod blocking;
mod commits;
mod event_loop;
mod executor;
mod pool;
mod port;
mod spin;
mod stop;
#[cfg(feature = "tokio")]
mod tokio;
#[cfg(feature = "tokio")]
mod tokio_commits;
mod uring;
mod workers;

use crate::choice::Model;
use crate::error::{ServeError, SystemOperation};
use crate::service::Service;
use event_loop::{EventLoop, Inbox, Incoming};
use executor::Executor;
use ioloom_sys_net::wait::{EpollEdge, EpollLevel, Poll, Select, Waiter};
pub(crate) use port::{PORTS_MAX, Port};
use std::sync::Arc;
use std::sync::mpsc::channel;

/// Returns the number of loops that a model runs on the specified number of cores.
pub(crate) fn loops(model: Model, cores: usize) -> usize {
    match model {
        Model::ReusePort | Model::IoThreads | Model::UringPerCore | Model::Tokio => cores.max(1),
        _ => 1,
    }
}

/// Runs a model until a stop is requested. `ports` contains the listeners of each loop.
pub(crate) fn run(
    model: Model,
    service: &Arc<Service>,
    mut ports: Vec<Vec<Port>>,
) -> Result<(), ServeError> {
    assert!(!ports.is_empty(), "a model must have at least one listener");
    let level = || EpollLevel::new().map_err(ServeError::system(SystemOperation::CreateEpoll));
    match model {
        Model::Iterative => blocking::iterative(service, &ports.remove(0)),
        Model::Thread => blocking::thread_per_connection(service, &ports.remove(0)),
        Model::Pool => pool::run(service, &ports.remove(0)),
        Model::Select => alone(service, Select::default(), ports.remove(0)),
        Model::Poll => alone(service, Poll::default(), ports.remove(0)),
        Model::Epoll => alone(service, level()?, ports.remove(0)),
        Model::EpollEdge => {
            let edge =
                EpollEdge::new().map_err(ServeError::system(SystemOperation::CreateEpoll))?;
            alone(service, edge, ports.remove(0))
        }
        Model::RequestPool => workers::run(service, level()?, ports.remove(0)),
        Model::ReusePort => {
            let incoming = ports.into_iter().map(Incoming::Own).collect();
            several(service, incoming, &epoll_loop(service))
        }
        Model::IoThreads => {
            let (senders, receivers): (Vec<_>, Vec<_>) =
                (1..service.loops()).map(|_| channel()).unzip();
            let mut incoming = vec![Incoming::Handing(ports.remove(0), senders)];
            incoming.extend(receivers.into_iter().map(|receiver| Incoming::Inbox(Inbox(receiver))));
            several(service, incoming, &epoll_loop(service))
        }
        #[cfg(feature = "tokio")]
        Model::Tokio => tokio::run(service, ports.remove(0)),
        #[cfg(not(feature = "tokio"))]
        Model::Tokio => Err(ServeError::Refused(crate::choice::WITHOUT_TOKIO.to_owned())),
        Model::Uring => uring::run(service, 0, ports.remove(0), false),
        Model::UringMany => uring::run(service, 0, ports.remove(0), true),
        Model::UringPerCore => {
            several(service, ports, &|number, ports| uring::run(service, number, ports, true))
        }
    }
}

fn alone(
    service: &Arc<Service>,
    waiter: impl Waiter + 'static,
    ports: Vec<Port>,
) -> Result<(), ServeError> {
    EventLoop::new(service, 0, Box::new(waiter), Incoming::Own(ports), Executor::Inline)?.run()
}

/// Returns a function that runs a level-triggered epoll loop.
fn epoll_loop(
    service: &Arc<Service>,
) -> impl Fn(usize, Incoming) -> Result<(), ServeError> + Sync + '_ {
    move |number, incoming| {
        let waiter = EpollLevel::new().map_err(ServeError::system(SystemOperation::CreateEpoll))?;
        EventLoop::new(service, number, Box::new(waiter), incoming, Executor::Inline)?.run()
    }
}

/// Runs one loop per element of `incoming`: the first on this thread, each of the others on a new
/// one.
fn several<In: Send>(
    service: &Service,
    incoming: Vec<In>,
    run: &(impl Fn(usize, In) -> Result<(), ServeError> + Sync),
) -> Result<(), ServeError> {
    std::thread::scope(|scope| {
        let mut incoming = incoming.into_iter().enumerate();
        let run = |(number, incoming): (usize, In)| {
            let ended = run(number, incoming);
            // If one loop fails, all of them stop.
            if ended.is_err() {
                service.stop();
            }
            ended
        };
        let first = incoming.next();
        let mut threads = Vec::new();
        for each in incoming {
            let builder = std::thread::Builder::new().name(format!("loop-{}", each.0));
            match builder.spawn_scoped(scope, move || run(each)) {
                Ok(thread) => threads.push(thread),
                Err(source) => {
                    service.stop();
                    return Err(ServeError::System {
                        operation: SystemOperation::StartThread,
                        source,
                    });
                }
            }
        }
        let mut ended = first.map_or(Ok(()), run);
        for thread in threads {
            ended = ended.and(thread.join().expect("a loop must not panic"));
        }
        ended
    })
}
