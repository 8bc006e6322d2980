var z={zh:"zh-c25b2332b7.json"};export{z as a};
