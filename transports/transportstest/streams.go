package transportstest

// streamCases need sessions or streams of events.
var streamCases = []testCase{}
