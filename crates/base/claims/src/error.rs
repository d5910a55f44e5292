//! Errors of claims, tables and formulas.

/// A file of claims, a table or a path that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ClaimsError {
    /// A published table is missing or malformed.
    #[error("invalid published table {table}: {reason}")]
    Table {
        /// Name of the table.
        table: String,
        /// What is wrong.
        reason: String,
    },
    /// A path does not lead to a published number.
    #[error("invalid path to a published number '{path}': {reason}")]
    Path {
        /// The path as written.
        path: String,
        /// What is wrong, or the form it should have.
        reason: String,
    },
    /// A file of claims cannot be used.
    #[error("invalid claims in {file}: {reason}")]
    Ledger {
        /// Name of the file as the caller gave it.
        file: String,
        /// What is wrong and where.
        reason: String,
    },
}
