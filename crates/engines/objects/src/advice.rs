//! What to do after an error, in the words of the cloud.

use crate::cloud::Cloud;
use crate::kind::{Action, Kind};

/// Returns what the user can do.
pub(crate) fn of(cloud: Cloud, action: Action, kind: Kind) -> Option<&'static str> {
    let of_cloud = match cloud {
        Cloud::S3 => s3(action, kind),
        Cloud::Azure => azure(action, kind),
        Cloud::Google => google(action, kind),
        Cloud::Web => web(kind),
    };
    of_cloud.or(match kind {
        Kind::Archived => Some("restore the object from the archive first"),
        Kind::Clock => Some("set the clock of this machine"),
        Kind::Changed => Some("run again after the other program has finished writing"),
        Kind::Memory => Some("raise the memory budget"),
        Kind::Descriptors => Some("raise the limit on open files with 'ulimit -n'"),
        _ => None,
    })
}

fn s3(action: Action, kind: Kind) -> Option<&'static str> {
    Some(match kind {
        Kind::Credentials => {
            "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY or AWS_PROFILE, or \
             AWS_SKIP_SIGNATURE=true for a public bucket"
        }
        Kind::Unreachable => "check AWS_ENDPOINT_URL and the network",
        Kind::NoBucket => "check the name of the bucket, AWS_ENDPOINT_URL and AWS_REGION",
        Kind::Denied => match action {
            Action::List => "check the credentials, and that they permit s3:ListBucket",
            Action::Write => "check the credentials, and that they permit s3:PutObject",
            Action::Abort => "check the credentials, and that they permit s3:AbortMultipartUpload",
            _ => "check the credentials, and that they permit s3:GetObject",
        },
        Kind::Region => "set AWS_REGION to the region of the bucket",
        Kind::NoStore => "check that AWS_ENDPOINT_URL is that of an S3 server",
        Kind::Busy | Kind::Server if action == Action::List => {
            "try again later, or check AWS_ENDPOINT_URL"
        }
        Kind::Response | Kind::Refused if action == Action::List => {
            "check that AWS_ENDPOINT_URL is that of an S3 server"
        }
        _ => return None,
    })
}

fn azure(action: Action, kind: Kind) -> Option<&'static str> {
    Some(match kind {
        Kind::Credentials => {
            "set AZURE_STORAGE_ACCOUNT_KEY or AZURE_STORAGE_SAS_TOKEN, or \
             AZURE_SKIP_SIGNATURE=true for a public container"
        }
        Kind::Unreachable => {
            "check AZURE_STORAGE_ACCOUNT_NAME, AZURE_STORAGE_ENDPOINT and the network"
        }
        Kind::NoBucket => {
            "check the name of the container, AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ENDPOINT"
        }
        Kind::Denied => match action {
            Action::List => "check AZURE_STORAGE_ACCOUNT_KEY, or that the token permits to list",
            Action::Write => "check AZURE_STORAGE_ACCOUNT_KEY, or that the token permits to write",
            _ => "check AZURE_STORAGE_ACCOUNT_KEY, or that the token permits to read",
        },
        Kind::NoStore => "check that AZURE_STORAGE_ENDPOINT is that of the Blob service",
        Kind::Busy | Kind::Server if action == Action::List => {
            "try again later, or check AZURE_STORAGE_ENDPOINT"
        }
        Kind::Response | Kind::Refused if action == Action::List => {
            "check that AZURE_STORAGE_ENDPOINT is that of the Blob service"
        }
        _ => return None,
    })
}

fn google(action: Action, kind: Kind) -> Option<&'static str> {
    Some(match kind {
        Kind::Credentials => {
            "set GOOGLE_APPLICATION_CREDENTIALS to a file with credentials, or \
             GOOGLE_SKIP_SIGNATURE=true for a public bucket"
        }
        Kind::Unreachable => "check STORAGE_EMULATOR_HOST, GOOGLE_BASE_URL and the network",
        Kind::NoBucket => "check the name of the bucket, STORAGE_EMULATOR_HOST and GOOGLE_BASE_URL",
        Kind::Denied => match action {
            Action::List => "check the credentials, and that they permit storage.objects.list",
            Action::Write => {
                "check the credentials, and that they permit storage.objects.create and \
                 storage.objects.delete"
            }
            Action::Abort => {
                "check the credentials, and that they permit storage.multipartUploads.abort"
            }
            _ => "check the credentials, and that they permit storage.objects.get",
        },
        Kind::NoStore => "check that GOOGLE_BASE_URL is that of Google Cloud Storage",
        Kind::Busy | Kind::Server if action == Action::List => {
            "try again later, or check GOOGLE_BASE_URL"
        }
        Kind::Response | Kind::Refused if action == Action::List => {
            "check that GOOGLE_BASE_URL is that of Google Cloud Storage"
        }
        _ => return None,
    })
}

fn web(kind: Kind) -> Option<&'static str> {
    Some(match kind {
        Kind::Unreachable => "check the host in the URL and the network",
        Kind::Missing => "check the URL",
        Kind::Denied => "check that the URL can be read without a password",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_names_the_variables_of_the_cloud_only() {
        let prefixes = [(Cloud::S3, "AWS_"), (Cloud::Azure, "AZURE_"), (Cloud::Google, "GOOGLE_")];
        for (cloud, prefix) in prefixes {
            for kind in [Kind::Credentials, Kind::Unreachable, Kind::NoBucket, Kind::NoStore] {
                let text = of(cloud, Action::List, kind).unwrap();
                assert!(text.contains(prefix), "{text}");
                let other = |(_, other): &(Cloud, &str)| *other != prefix && text.contains(other);
                assert!(!prefixes.iter().any(other), "{text}");
            }
            assert!(of(cloud, Action::Write, Kind::Denied).is_some());
        }
        assert_eq!(of(Cloud::Web, Action::Read, Kind::Credentials), None);
        assert!(of(Cloud::Web, Action::Read, Kind::Changed).is_some());
    }
}
