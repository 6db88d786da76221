// Package schematest holds schemas for tests, ready-made and random, and checks
// values with another implementation of JSON schema.
package schematest
