//! Sets of bits that the kernel defines.

/// Gives a type that wraps a `u32` the operations of a set; they also work in constants.
macro_rules! set_of_bits {
    ($set:ident) => {
        impl $set {
            /// The empty set.
            pub const EMPTY: Self = Self(0);

            /// Returns the kernel's bits.
            #[must_use]
            pub const fn bits(self) -> u32 {
                self.0
            }

            /// Returns whether the set is empty.
            #[must_use]
            pub const fn is_empty(self) -> bool {
                self.0 == 0
            }

            /// Returns the bits that are in either set; unlike `|` it works in constants.
            #[must_use]
            pub const fn union(self, other: Self) -> Self {
                Self(self.0 | other.0)
            }

            /// Returns this set without the bits in `other`.
            #[must_use]
            pub const fn without(self, other: Self) -> Self {
                Self(self.0 & !other.0)
            }

            /// Returns the bits that are in both sets.
            #[must_use]
            pub const fn intersection(self, other: Self) -> Self {
                Self(self.0 & other.0)
            }
        }

        impl core::ops::BitOr for $set {
            type Output = Self;

            fn bitor(self, other: Self) -> Self {
                self.union(other)
            }
        }

        impl core::ops::BitOrAssign for $set {
            fn bitor_assign(&mut self, other: Self) {
                *self = self.union(other);
            }
        }
    };
}

pub(crate) use set_of_bits;
