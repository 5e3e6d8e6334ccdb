//! Cgroups on the kernel that there is: whatever is mounted is used, and what is not is skipped.

mod devices;
mod support;
mod version_1;
mod version_2;
