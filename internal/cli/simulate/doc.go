// Package simulate is the verb that plays the load of a cluster in virtual time. dynlab does the work.
package simulate
