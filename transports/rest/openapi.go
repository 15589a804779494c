package rest

import "net/http"

func serveOpenAPI(w http.ResponseWriter, r *http.Request) error {
	return refuse(http.StatusNotFound, "", "not here")
}
