//! What can be wrong with a ledger or a table.

/// A ledger, a table or a formula that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ClaimsError {
    /// A published table is missing or malformed.
    #[error("published table {table}: {reason}")]
    Table {
        /// Name of the table.
        table: String,
        /// What is wrong.
        reason: String,
    },
    /// A path to a published number leads nowhere.
    #[error("published number '{path}': {reason}")]
    Path {
        /// The path as written.
        path: String,
        /// What is wrong, or the form it should have.
        reason: String,
    },
    /// A ledger file cannot be used.
    #[error("ledger {file}: {reason}")]
    Ledger {
        /// Name of the file as the caller gave it.
        file: String,
        /// What is wrong and where.
        reason: String,
    },
}
