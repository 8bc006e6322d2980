var a={zh:"zh-9ba5621977.json"};export{a};
