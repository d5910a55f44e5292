//! Settings that can be replaced while the server runs.
//!
//! Limits are plain atomics, because every timeout check reads them. Tokens and certificates are
//! behind a lock that is taken once per connection; a connection keeps those with which it started.

use crate::error::ServeError;
use crate::limits::Limits;
use crate::options::TlsFiles;
use crate::peers::Peers;
use crate::reports::TARGET;
use ioloom_exchange::Access;
use ioloom_failure::quoted;
use ioloom_tls::Identity;
use std::sync::RwLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// What a reload replaces.
#[derive(Debug, Clone, Default)]
pub struct Reload {
    /// The tokens, one of which clients must present. A server that requires a token keeps requiring
    /// one, and one that does not cannot start to.
    pub access: Option<Access>,
    /// The certificate and key, which are read again. A server cannot switch TLS on or off.
    pub tls: Option<TlsFiles>,
    /// Maximum number of open connections, idle time, request time and the limits per client; the
    /// others are ignored.
    pub limits: Limits,
}

impl Reload {
    /// Reads the certificate and its key. A file system that does not respond delays this.
    pub(crate) fn identity(&self) -> Result<Option<Identity>, ServeError> {
        let read = |files: &TlsFiles| Identity::read(&files.certificate, &files.key);
        Ok(self.tls.as_ref().map(read).transpose()?)
    }
}

/// The current settings.
pub(crate) struct Live {
    connections: AtomicUsize,
    idle_ns: AtomicU64,
    request_ns: AtomicU64,
    pub(crate) peers: Peers,
    secrets: RwLock<Secrets>,
    is_sealed: bool,
}

/// What decides who can connect.
#[derive(Clone)]
pub(crate) struct Secrets {
    pub(crate) access: Option<Access>,
    pub(crate) identity: Option<Identity>,
}

impl Secrets {
    /// Returns why clients reject the certificate at this time.
    pub(crate) fn outdated(&self) -> Option<&'static str> {
        self.identity.as_ref().and_then(Identity::outdated)
    }
}

fn ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl Live {
    pub(crate) fn new(limits: &Limits, secrets: Secrets) -> Self {
        Self {
            connections: AtomicUsize::new(limits.connections),
            idle_ns: AtomicU64::new(ns(limits.idle)),
            request_ns: AtomicU64::new(ns(limits.request)),
            peers: Peers::new(limits),
            is_sealed: secrets.identity.is_some(),
            secrets: RwLock::new(secrets),
        }
    }

    /// Replaces everything or, on error, nothing. `identity` is that of `reload`.
    pub(crate) fn reload(
        &self,
        reload: &Reload,
        identity: Option<Identity>,
    ) -> Result<(), ServeError> {
        let mut secrets = self.secrets.write().expect("the lock must not be poisoned");
        if secrets.access.is_some() != reload.access.is_some()
            || self.is_sealed != identity.is_some()
        {
            let reason = "a running server cannot start or stop requiring tokens or TLS";
            return Err(ServeError::Refused(reason.to_owned()));
        }
        let outdated = identity.as_ref().and_then(Identity::outdated);
        let problem = match (&reload.tls, outdated) {
            (Some(files), Some(reason)) => {
                Some(format!("certificate {} {reason}", quoted(&files.certificate)))
            }
            _ => None,
        };
        if let Some(problem) = &problem
            && secrets.outdated().is_none()
        {
            return Err(ServeError::Refused(problem.clone()));
        }
        *secrets = Secrets { access: reload.access.clone(), identity };
        drop(secrets);
        // The previous certificate was not valid either, so the other settings need not wait. A log
        // may be slow, and new connections wait for the lock.
        if let Some(problem) = problem {
            tracing::warn!(target: TARGET, "{problem}; clients reject it");
        }
        self.connections.store(reload.limits.connections, Ordering::Relaxed);
        self.idle_ns.store(ns(reload.limits.idle), Ordering::Relaxed);
        self.request_ns.store(ns(reload.limits.request), Ordering::Relaxed);
        self.peers.set(&reload.limits);
        Ok(())
    }

    /// Returns the current tokens and certificate.
    pub(crate) fn secrets(&self) -> Secrets {
        self.secrets.read().expect("the lock must not be poisoned").clone()
    }

    /// Returns true if connections use TLS.
    pub(crate) fn is_sealed(&self) -> bool {
        self.is_sealed
    }

    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    /// Returns the time after which an idle connection is closed; zero if never.
    pub(crate) fn idle(&self) -> Duration {
        Duration::from_nanos(self.idle_ns.load(Ordering::Relaxed))
    }

    /// Returns the time limit for a request.
    pub(crate) fn request(&self) -> Duration {
        Duration::from_nanos(self.request_ns.load(Ordering::Relaxed))
    }
}
