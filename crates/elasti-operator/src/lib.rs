//! The control plane: makes the cluster follow the plan.
//! It never decides: every decision is made in `elasti-core`.
