% Closed networks by octave's package queueing, exact mean value analysis.
%
%     octave-cli --quiet --no-init-file networks.m TASK CUSTOMERS STATIONS SERVERS
%
% TASK is mva (qncsmva, one server each) or load-dependent (qncsmvald, SERVERS each). Station k of K has a demand
% of (1 + k/10) ms, k = 0 ... K - 1; nobody thinks.
pkg load queueing
given = argv();
task = given{end - 3};
customers = str2double(given{end - 2});
stations = str2double(given{end - 1});
servers = str2double(given{end});

function throughput = solve(task, n, demands, servers)
  visits = ones(1, numel(demands));
  if strcmp(task, "mva")
    [u, r, q, x] = qncsmva(n, demands, visits);
  else
    [u, r, q, x] = qncsmvald(n, demands' * (1 ./ min(1:n, servers)), visits);
  end
  throughput = x(1);
end

demands = (1 + (0:stations - 1) / 10) / 1000;
solve(task, 10, demands, servers);
tic;
throughput = solve(task, customers, demands, servers);
seconds = toc;
package = pkg("list", "queueing"){1};
printf('{"seconds": %.9g, "answer": %.17g, "version": "octave %s, queueing %s"}\n', seconds, throughput, ...
       OCTAVE_VERSION, package.version);
