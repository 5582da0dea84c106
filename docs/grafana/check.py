#!/usr/bin/env python3
"""Checks that a Prometheus server has data for every query of the dashboard::

    python docs/grafana/check.py [http://localhost:9090] [--interval 1m] [--absent stall,network]

The program sends each query of warpfeed.json to the server, for all jobs and loaders, and prints the number of
series that have a value. The exit code is 1 if a variable of the dashboard has no values, or if a query fails or has
no such series. ``--absent`` lists words for metrics that the loaders do not measure, such as ``stall`` without a GPU
and ``network`` without an object store: a query that contains one of these words may have no series.
"""

import argparse
import json
import math
import pathlib
import sys
import urllib.error
import urllib.parse
import urllib.request

DASHBOARD = pathlib.Path(__file__).with_name("warpfeed.json")


def request(server, path, **parameters):
    """Returns the data in a response of Prometheus's HTTP API."""
    query = urllib.parse.urlencode(parameters)
    try:
        with urllib.request.urlopen(f"{server}/api/v1/{path}?{query}", timeout=30) as answer:
            return json.load(answer)["data"]
    except urllib.error.HTTPError as e:
        raise ValueError(json.load(e)["error"]) from None


def queries(dashboard, interval):
    """For each query, yields the title of its panel, the query, and the legend of its series."""
    for panel in dashboard["panels"]:
        for target in panel.get("targets", []):
            query = target["expr"].replace("$__rate_interval", interval)
            yield panel["title"], query.replace("$job", ".*").replace("$loader", ".*"), target["legendFormat"]


def variables(dashboard):
    """Yields the name, the selector and the label of each variable that lists the values of a label."""
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            selector, label = variable["query"].removeprefix("label_values(").removesuffix(")").rsplit(", ", 1)
            yield variable["name"], selector.replace("$job", ".*"), label


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("server", nargs="?", default="http://localhost:9090")
    parser.add_argument("--interval", default="1m", help="interval of rates: at least four times the scrape interval")
    absent = "words, separated by commas: queries that contain one of them may have no data"
    parser.add_argument("--absent", default="", help=absent)
    options = parser.parse_args()
    dashboard, failed = json.loads(DASHBOARD.read_text(encoding="utf-8")), False
    for name, selector, label in variables(dashboard):
        values = request(options.server, f"label/{label}/values", **{"match[]": selector})
        print(f"variable {name}: {', '.join(values) or 'NO VALUES'}")
        failed |= not values
    absent = [word for word in options.absent.split(",") if word]
    for title, query, legend in queries(dashboard, options.interval):
        try:
            result = request(options.server, "query", query=query)["result"]
            series = sum(math.isfinite(float(one["value"][1])) for one in result)
        except ValueError as e:
            print(f"{title} ({legend}): FAILED: {e}: {query}")
            failed = True
            continue
        missing = series == 0 and not any(word in query for word in absent)
        failed |= missing
        print(f"{title} ({legend}): {series} series" + (f", NO DATA: {query}" if missing else ""))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
