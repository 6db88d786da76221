// Package cache has the verb for the workers' prefix caches: dynctl cache clear.
package cache
