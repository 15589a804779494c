// Package report is what a load test leaves behind: run.json for programs, a table for people.
//
// It writes down what it is given and judges nothing but objectives. A figure that is not known is null with the reason beside it, never a
// zero. It must never know how a figure was measured, nor start anything.
package report
