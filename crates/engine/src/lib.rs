//! Every decision of the serving plane, as state machines.
