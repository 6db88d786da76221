// Package plan is the verb that finds topologies for a load. dynlab does the work.
package plan
