//! What reductions, windows and scans do with their elements.

crate::attr_enum! {
    /// What a reduction does.
    pub enum ReduceKind {
        /// Sum; 0 of none.
        Sum = "sum",
        /// Product; 1 of none.
        Prod = "prod",
        /// Smallest; NaN if any is; +∞ or the largest integer of none.
        Min = "min",
        /// Largest; NaN if any is; −∞ or the smallest integer of none.
        Max = "max",
        /// True if any is true.
        Any = "any",
        /// True if all are true.
        All = "all",
    }
}

crate::attr_enum! {
    /// What is done with a window.
    pub enum WindowKind {
        /// Largest; NaN if any is.
        Max = "max",
        /// Mean.
        Mean = "mean",
        /// Sum.
        Sum = "sum",
    }
}

crate::attr_enum! {
    /// What a running fold does.
    pub enum CumKind {
        /// Sum.
        Sum = "sum",
        /// Product.
        Prod = "prod",
        /// Largest; NaN once one was.
        Max = "max",
        /// Smallest; NaN once one was.
        Min = "min",
    }
}
