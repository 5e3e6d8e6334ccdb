//! PostgreSQL and Redis of the distribution as services.
