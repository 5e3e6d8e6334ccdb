#!/usr/bin/python3
"""Serves images from a directory, as a registry from which one can only pull.

    registry.py PORT    serves the files v2/NAME/{manifests,blobs}/DIGEST below the working directory
"""

import http.server
import json
import sys


class Registry(http.server.SimpleHTTPRequestHandler):
    def guess_type(self, path):
        if "/manifests/" not in path:
            return "application/octet-stream"
        with open(path, encoding="utf-8") as file:
            return json.load(file)["mediaType"]


http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Registry).serve_forever()
