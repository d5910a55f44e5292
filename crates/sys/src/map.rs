//! Memory mappings of files.
