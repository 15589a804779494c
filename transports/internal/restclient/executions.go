package restclient

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protojson"

	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
	"tailgate/transports/internal/cursor"
	"tailgate/transports/internal/outcome"
	"tailgate/transports/internal/restapi"
)

// maxEventBytes bounds one event of a stream as a client takes it. The JSON of transports.MaxEventBytes is far below.
const maxEventBytes = 64 << 10

// Executions returns the Executions of the transport of this name: one connection, one stream, and no connecting again.
func Executions(name string) func(context.Context, transports.DialConfig, *pb.StreamExecutionsRequest, func(*pb.ExecutionReport)) error {
	return func(ctx context.Context, config transports.DialConfig, request *pb.StreamExecutionsRequest, receive func(*pb.ExecutionReport)) error {
		err := executions(ctx, config, request, receive)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return fmt.Errorf("%s: executions of %s: %w", name, config.Address, err)
	}
}

func executions(ctx context.Context, config transports.DialConfig, request *pb.StreamExecutionsRequest, receive func(*pb.ExecutionReport)) error {
	c, err := newClient(config)
	if err != nil {
		return err
	}
	defer c.Close() //nolint:errcheck // it was read to its end
	return c.follow(ctx, config.Limits.WithDefaults().HandshakeTimeout, request, receive)
}

// follow returns why the stream ended, which is always an error. The beginning of the answer has to come within the time for handshakes.
func (c *client) follow(ctx context.Context, handshake time.Duration, message *pb.StreamExecutionsRequest, receive func(*pb.ExecutionReport)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	late := time.AfterFunc(handshake, cancel)
	request, err := c.newRequest(ctx, restapi.RouteOf(transports.StreamExecutions), message)
	if err != nil {
		return err
	}
	request.Header = request.Header.Clone()
	request.Header.Set("Accept", restapi.EventsType)
	response, err := c.transport.RoundTrip(request)
	late.Stop()
	if err != nil {
		return outcome.NotSent(ctx, err) // a request to read changes nothing, sent or not
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK || response.Header.Get("Content-Type") != restapi.EventsType {
		body, _ := io.ReadAll(io.LimitReader(response.Body, maxEventBytes)) // what there is of it
		var p restapi.Problem
		if response.Header.Get("Content-Type") == restapi.ProblemType && json.Unmarshal(body, &p) == nil && p.Reason != "" {
			return p.Fault()
		}
		return transports.InDoubt(pb.Reason_REASON_INTERNAL, nil, "no answer of a gateway: status %d, Content-Type %q, body %.128q",
			response.StatusCode, response.Header.Get("Content-Type"), body)
	}
	var at cursor.Cursor
	lines := newEventReader(response.Body)
	for {
		name, data, err := lines.next()
		switch {
		case err != nil:
			return transports.InDoubt(pb.Reason_REASON_CONNECTION_LOST, err, "the stream broke off; go on from the last event that you have")
		case name == "execution":
			report := new(pb.ExecutionReport)
			if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(data, report); err != nil { // a client takes what a newer gateway adds
				return transports.InDoubt(pb.Reason_REASON_INTERNAL, err, "what came is not an ExecutionReport")
			}
			if err := at.Take(report); err != nil {
				return err
			}
			receive(report)
		case name == "error":
			var p restapi.Problem
			if err := json.Unmarshal(data, &p); err != nil {
				return transports.InDoubt(pb.Reason_REASON_INTERNAL, err, "the stream ended with %.128q", data)
			}
			return p.Fault()
		}
	}
}

// eventReader reads Server-Sent Events (WHATWG HTML, section 9.2.6) as our server writes them: lines end with LF. Ids are left to those
// who connect again.
type eventReader struct{ lines *bufio.Scanner }

func newEventReader(r io.Reader) *eventReader {
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 0, 4<<10), maxEventBytes)
	return &eventReader{lines: lines}
}

// next returns the name and the data of the next event that has data; the data is valid until the next call. An event that was cut off is
// none.
func (e *eventReader) next() (name string, data []byte, err error) {
	for e.lines.Scan() {
		line := e.lines.Bytes()
		if len(line) == 0 {
			if data != nil {
				return name, data, nil
			}
			name = ""
			continue
		}
		field, value, _ := strings.Cut(string(line), ":")
		value = strings.TrimPrefix(value, " ")
		switch field {
		case "event":
			name = value
		case "data":
			if data != nil {
				data = append(data, '\n')
			}
			if data = append(data, value...); len(data) > maxEventBytes {
				return "", nil, fmt.Errorf("an event has more than %d bytes", maxEventBytes)
			}
		}
	}
	return "", nil, errors.Join(io.ErrUnexpectedEOF, e.lines.Err())
}
