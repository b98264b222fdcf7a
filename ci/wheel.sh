# wheel DIR: the wheel of the Python package
. ci/python_environment.sh
python_environment
wheel "${1:?wheel needs a DIR}"
