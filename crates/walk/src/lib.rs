//! A directory walker that yields regular files and says what it skipped.
