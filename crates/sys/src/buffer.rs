//! Page-aligned buffers.
