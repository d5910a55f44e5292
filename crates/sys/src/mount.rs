//! Mounts, loop devices and file-system facts.
