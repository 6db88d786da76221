// Package outside serves what is not built in: models whose engine is a function of another
// program, or a service behind a URL, and endpoints that such a service answers.
package outside
