// Package predict forecasts series of load: requests in a second, tokens of a prompt.
//
// A [Predictor] gets what was seen, oldest first and in equal steps, and returns what it
// expects of the next steps. [Named] finds one by its name; [Auto] chooses by back-testing
// on what was seen. NaN, infinite and negative values are gaps. Leading gaps and zeros are
// a cold start and are left out.
//
// Everything here is a pure function of its arguments: no clock, no state, no randomness.
// Values are never negative, NaN or infinite. The package does not know what it predicts.
package predict
