//! One adapter per engine, so that the lab can run it.
