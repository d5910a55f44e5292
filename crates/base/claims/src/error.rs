//! Errors in claims, tables and formulas.

/// An unusable claims file, table or path.
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
    /// A path does not resolve to a published number.
    #[error("invalid path to a published number '{path}': {reason}")]
    Path {
        /// The path as written.
        path: String,
        /// What is wrong, or the expected form.
        reason: String,
    },
    /// A claims file is invalid.
    #[error("invalid claims in {file}: {reason}")]
    Ledger {
        /// File name passed by the caller.
        file: String,
        /// What is wrong and where.
        reason: String,
    },
}
