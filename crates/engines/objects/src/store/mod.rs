//! The clients of a store, made from the settings of its users.

mod azure;
mod google;
mod s3;
mod settings;
mod web;

use crate::client::Client;
use crate::cloud::Cloud;
use crate::error::{Action, Kind, ObjectError};
use crate::location::Location;
use crate::wire::innermost;
use settings::{Clients, Make, Variables};
use std::fmt;
use std::sync::Arc;

/// The clients of a bucket. Cheap to clone.
#[derive(Clone)]
pub struct Store {
    pub(crate) location: Location,
    /// URL of the server, or nothing for the usual one.
    pub(crate) endpoint: String,
    /// Makes a client like `reading`, with its credentials.
    make: Arc<Make>,
    /// Repeats nothing, so that each refusal is seen.
    pub(crate) reading: Arc<dyn Client>,
    /// The same for requests that write.
    pub(crate) writing: Arc<dyn Client>,
    /// Repeats what failed for a while.
    pub(crate) patient: Arc<dyn Client>,
}

/// Without the settings, which have the keys.
impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { location, endpoint, .. } = self;
        write!(f, "Store {{ {}, endpoint {endpoint:?} }}", location.url())
    }
}

impl Store {
    /// Makes the clients for a location from the environment. Nothing is sent.
    ///
    /// # Errors
    ///
    /// Returns an error of the kind [`Kind::Configuration`] if a setting is invalid.
    pub fn open(location: Location) -> Result<Self, ObjectError> {
        let text = |text: std::ffi::OsString| text.into_string().ok();
        let all = std::env::vars_os().filter_map(|(name, value)| Some((text(name)?, text(value)?)));
        Self::with_variables(location, all)
    }

    /// Makes the clients for a location from variables with the names and the meaning of those of the
    /// environment.
    ///
    /// # Errors
    ///
    /// Returns an error of the kind [`Kind::Configuration`] if a setting is invalid.
    pub fn with_variables(
        location: Location,
        variables: impl IntoIterator<Item = (impl Into<String>, impl Into<String>)>,
    ) -> Result<Self, ObjectError> {
        let variables: Variables =
            variables.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
        // Needed once by a process; it fails if it was done before.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let at = location.clone();
        let opened = match location.cloud {
            Cloud::S3 => s3::open(&location, variables).map(|clients| with(at, clients)),
            Cloud::Azure => azure::open(&location, variables).map(|clients| with(at, clients)),
            Cloud::Google => google::open(&location, variables).map(|clients| with(at, clients)),
            Cloud::Web => web::open(&location).map(|clients| with(at, clients)),
        };
        opened.map_err(|reason| {
            ObjectError::new(Action::Open, location.url(), Kind::Configuration, reason)
        })
    }

    /// Returns the same with connections of its own for reading. Credentials are shared.
    pub(crate) fn with_own_connections(&self) -> Result<Self, ObjectError> {
        let reading = (self.make)().map_err(|error| {
            let reason = innermost(&error);
            ObjectError::new(Action::Open, self.location.url(), Kind::Configuration, reason)
        })?;
        Ok(Self { reading, ..self.clone() })
    }

    /// Returns the error of a client whose threads cannot start.
    pub(crate) fn no_client(&self, error: &std::io::Error) -> ObjectError {
        let reason = format!("cannot start the client: {}", ioloom_failure::reason(error));
        ObjectError::new(Action::Open, self.location.url(), Kind::Configuration, reason)
    }

    /// Returns the location that was opened.
    pub fn location(&self) -> &Location {
        &self.location
    }
}

/// Returns the store of a location.
fn with<T: Client + 'static>(location: Location, clients: Clients<T>) -> Store {
    let Clients { endpoint, make, reading, writing, patient } = clients;
    Store { location, endpoint, make, reading, writing, patient }
}
