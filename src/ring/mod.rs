//! The ring: partitioners and tokens.
