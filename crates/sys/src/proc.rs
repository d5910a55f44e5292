//! Plain records from /proc and /sys.
