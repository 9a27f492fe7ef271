drop schema if exists {schemas} cascade
