//! Records: how an input is split, and what its attributes are.
